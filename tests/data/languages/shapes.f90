module shapes
  implicit none
  type, abstract :: shape
    integer :: id
  end type
  type, extends(shape) :: circle
    real(8) :: radius
    complex(8) :: centre
    logical :: filled
    character(len=12) :: label
    real, allocatable :: points(:,:)
    type(circle), pointer :: next
  end type
  integer, dimension(10) :: table
  common /block/ first, second
  integer :: first
  real :: second
contains
  subroutine resize(c, n, text)
    type(circle), intent(inout) :: c
    integer, intent(in) :: n
    character(len=*), intent(in) :: text
    real, dimension(n) :: local
    local = 1.0
    c%radius = sum(local) + len(text)
    if (allocated(c%points)) c%points(1,1) = 2
  end subroutine
  function area(c)  result(a)
    use iso_c_binding
    type(circle), intent(in) :: c
    real(c_double) :: a
    a = 3.14 * c%radius ** 2
  end function
end module
